"""Training policies on models."""
