// Package tests names the module whose tests are run, so that its version is pinned in go.mod.
package tests

import _ "github.com/segmentio/kafka-go"
