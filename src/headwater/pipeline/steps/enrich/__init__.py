"""Rules that look a value up and add what they find, once per distinct value."""
