"""`python -m headwater`, for places where the console script is not on the PATH."""

from headwater.cli.main import main

if __name__ == "__main__":
    main()
