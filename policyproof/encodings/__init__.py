"""Expressions, networks and ties as input of solvers."""
