"""What a load is, read once for every room: its run, its times, its price, its targets and its demand."""
