"""`python -m hetplan` is `hetplan`."""

from hetplan.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
