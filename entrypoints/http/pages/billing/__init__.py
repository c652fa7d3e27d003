"""The pages about plans and subscriptions."""
