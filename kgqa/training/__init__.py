"""Training of what papers trained, one library a file; it knows neither methods nor engines."""
