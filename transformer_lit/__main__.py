"`python -m transformer_lit` is the command `transformer-lit`."

import sys

from transformer_lit.recipes.cli import main

if __name__ == "__main__":
    sys.exit(main())
