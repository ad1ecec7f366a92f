module go-etl

go 1.26

require github.com/gpurun/gpurun v0.0.0

replace github.com/gpurun/gpurun => ../..
