"""Exports anew the graphs that come packed with Melforge."""

from checkout import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.pack_graphs")
