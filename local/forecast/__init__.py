"""What a campaign can be worth, simulated on made-up rows before anybody answers."""
