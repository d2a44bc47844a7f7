"""Analyses: runs that answer one question about a recipe, asked for with a submission or afterwards."""
