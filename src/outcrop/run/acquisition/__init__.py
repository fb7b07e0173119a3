"""What a pass does besides updating: sources, receivers, sums, snapshots, from what users say to what is kept."""
