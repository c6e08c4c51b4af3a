"""Execution of programs: scheduler, services, costs, progress, and the folders that are being written."""
