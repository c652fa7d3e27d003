"""What the system knows and does. Standard library only; nothing here awaits anything but a port."""
