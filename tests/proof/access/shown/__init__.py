"""What answers and pages show to callers with few rights."""
