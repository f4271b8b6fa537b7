"""The doctor: looks at an installation from the settings file to the provider, changes nothing, and says what to do."""
