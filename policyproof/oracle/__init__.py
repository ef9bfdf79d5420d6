"""The decision oracle: what can the policy choose somewhere in a region?"""
