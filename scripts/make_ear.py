"""Makes the folder of an ear, as `melforge ear` does."""

from checkout import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.ear")
