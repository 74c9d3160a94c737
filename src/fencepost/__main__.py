"""Run the command `fencepost` as `python -m fencepost`."""

from fencepost.cli.main import main

if __name__ == "__main__":
    main()
