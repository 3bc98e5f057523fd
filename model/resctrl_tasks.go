package model

import "fmt"

// The classes of service that policies put tasks into. Each is one control group of resctrl, made when
// it is first needed and removed with its last use; machines have as few as four.
const (
	ClassFound TaskNum = iota // none of ours: where the task was found
	ClassBE
	NumClasses
)

var className = [NumClasses]string{"as found", "be"}

// ClassName returns a class's name, by which its control group is called.
func ClassName(class TaskNum) string {
	if class < NumClasses {
		return className[class]
	}
	return fmt.Sprintf("unknown(%d)", class)
}

// serviceClassSpec is the class of service that a task's threads are in: the file tasks of a control group of
// resctrl. Threads that another program put into a group of its own stay there.
var serviceClassSpec = func() KnobSpec {
	s := KnobSpec{
		Name: "resctrl.tasks", Beside: true,
		Takes: [NumClaimKinds][]Class{ClaimPlace: {BE}},
		Class: func(s Setting) TaskNum { return TaskNum(s.Amount) },
		Show:  func(s Setting) string { return "class " + ClassName(TaskNum(s.Amount)) },
	}
	s.Encode, s.Decode = oneNumber(ServiceClass)
	return s
}()

// InClass returns the setting of a task in a class of service.
func InClass(class TaskNum) Setting { return Setting{Knob: ServiceClass, Amount: int64(class)} }
