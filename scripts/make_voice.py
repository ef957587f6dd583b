"""Makes a voice of weights, as `melforge voice make` does."""

from checkout import run_command

if __name__ == "__main__":
    run_command("melforge.common.cli.voice_make")
