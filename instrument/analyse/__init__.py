"""Parsed traces -> tables that explain them; one module a question."""
