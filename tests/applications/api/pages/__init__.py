"""Tests for the application pages."""
