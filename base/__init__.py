"""What any other folder may use: validation, errors, the format of numbers, files, progress."""
