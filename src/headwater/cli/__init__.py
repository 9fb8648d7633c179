"""The command line: a module or package for each command; the only place that connects the stages."""
