"""``python -m topkopt``: the demonstration."""

from topkopt._demo import main

if __name__ == "__main__":
    main()
