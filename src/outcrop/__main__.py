"""`python -m outcrop` is the command `outcrop`, for environments whose programs are not in PATH."""

from outcrop.cli.main import main

if __name__ == "__main__":
    main()
