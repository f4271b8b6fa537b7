"""What makes a sentence stand alone: dates, persons and pronouns. Pure: text in, text out."""
