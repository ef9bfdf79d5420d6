"""Policy predicate abstraction (ICAPS22): is the abstraction of the policy's state space safe?"""
