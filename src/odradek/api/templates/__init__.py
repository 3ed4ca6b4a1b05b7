"""Request templates: requests like an earlier one are handled without being decoded."""
