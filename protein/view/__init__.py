"""What people see of sweeps, training runs and playback: live views, tables, plots, and the same as plain data. Views
never change the store."""
