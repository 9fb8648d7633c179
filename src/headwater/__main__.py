"""`python -m headwater`, for places where the console script is not on the PATH."""

from headwater.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
