"""`python -m proxy`: the same as the command `sidemirror`."""

from proxy.cli import main

main()
