// Loads compose files as version 2 of Compose does, with its own library, and prints the services of each: compose2 FILE...
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	for _, file := range os.Args[1:] {
		options, err := cli.NewProjectOptions([]string{file}, cli.WithOsEnv, cli.WithName("check"))
		if err == nil {
			project, loaded := options.LoadProject(context.Background())
			if err = loaded; err == nil {
				fmt.Println(file, project.ServiceNames())
				continue
			}
		}
		fmt.Fprintln(os.Stderr, file, err)
		os.Exit(1)
	}
}
