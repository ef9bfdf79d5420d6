"""`python -m policyproof`"""

from policyproof.cli import main

main()
