"""Tests of the pages of applications."""
