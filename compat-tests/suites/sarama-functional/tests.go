//go:build tools

// Package tests names the modules whose tests and proxy are run, so that their versions are pinned in go.mod.
package tests

import (
	_ "github.com/IBM/sarama"
	_ "github.com/Shopify/toxiproxy/v2/cmd/server"
)
