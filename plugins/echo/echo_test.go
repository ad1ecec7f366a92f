package echo_test

import (
	"context"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/echo"
	"github.com/gpurun/gpurun/plugins/kerneltest"
)

func TestConformance(t *testing.T) {
	kerneltest.Run(t, echo.New, kerneltest.Options{})
}

func TestConfiguration(t *testing.T) {
	for config, accepted := range map[string]bool{``: true, ` `: true, `{}`: true, `{"text":1}`: false, `[`: false, `{} {}`: false} {
		_, err := echo.New().Describe(context.Background(), plugins.Config(config))
		if accepted != (err == nil) {
			t.Errorf("configuration %q: %v", config, err)
		}
		if err != nil && fault.KindOf(err) != fault.Incompatible {
			t.Errorf("configuration %q: kind %s", config, fault.KindOf(err))
		}
	}
}
