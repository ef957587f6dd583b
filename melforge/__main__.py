"""python -m melforge"""

from melforge.command import main

if __name__ == "__main__":
    main()
