"""Installs lineage in a Python process and records how the process ends. Start reading at install.py."""
