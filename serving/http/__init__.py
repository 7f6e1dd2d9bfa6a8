"""What every door shares: routes, headers, cookies, compression."""
