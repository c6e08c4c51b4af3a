"""Reports of finished runs, sweeps, trainings and reproductions as Markdown, HTML, LaTeX and CSV, and exports."""
