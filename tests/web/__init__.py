"""What pages show and whom they obey."""
