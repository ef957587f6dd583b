"""The commands: their parser, options, and a module for each command."""
