package cgroup

// StartTask is startTask for the tests outside of the package.
var StartTask = startTask
