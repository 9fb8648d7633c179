"""Installs lineage in a Python process and reads how the process ends; start at install.py."""
