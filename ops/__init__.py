"""What is needed to run, ship and measure the service; nothing here is imported by it."""
