"""A user's own documents: text, HTML, Word and PDF files as passages, and answers that quote their sentences."""
