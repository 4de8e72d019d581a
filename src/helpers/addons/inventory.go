package addons

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	// InventoryNamespace holds the ConfigMap with the inventory.
	InventoryNamespace = metav1.NamespaceSystem
	// DefaultInventory is the name of that ConfigMap when none is asked for.
	DefaultInventory = "kubernetes-bosh-release-addons"
	inventoryKey     = "objects.json"
)

// entry is one object that was, or was about to be, applied.
type entry struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// UID is of the object that was applied; empty while the apply is only intended.
	UID types.UID `json:"uid,omitempty"`
	// Foreign says that the object was there before the first apply, made by someone else: it is never deleted.
	Foreign bool `json:"foreign,omitempty"`
}

func (e entry) key() key {
	return key{schema.GroupKind{Group: e.Group, Kind: e.Kind}, e.Namespace, e.Name}
}

// inventory is the cluster's record of what was applied. It is written before anything is applied, with all that was and
// all that will be, and again afterwards, so that an apply which is cut short forgets nothing: at worst it
// remembers an object that never came to be.
type inventory struct {
	client kubernetes.Interface
	// retry repeats requests that the API server did not answer.
	retry   func(ctx context.Context, request func() error) error
	name    string
	stored  *corev1.ConfigMap
	entries map[key]entry
}

func (a *applier) readInventory(ctx context.Context, name string) (*inventory, error) {
	i := &inventory{client: a.client, retry: a.retry, name: name, entries: map[key]entry{}}
	if err := i.read(ctx); err != nil {
		return nil, err
	}
	if i.stored == nil {
		return i, nil
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(i.stored.Data[inventoryKey])))
	decoder.DisallowUnknownFields()
	var entries []entry
	if err := decoder.Decode(&entries); err != nil {
		return nil, fmt.Errorf("inventory ConfigMap %s/%s, key %s: %w; it was changed by hand or by a newer release: restore it, or delete the ConfigMap and, by hand, the objects that are no longer wanted",
			InventoryNamespace, name, inventoryKey, err)
	}
	for _, e := range entries {
		i.entries[e.key()] = e
	}
	return i, nil
}

// read gets what is stored; nothing is not an error.
func (i *inventory) read(ctx context.Context) error {
	err := i.retry(ctx, func() (err error) {
		i.stored, err = i.client.CoreV1().ConfigMaps(InventoryNamespace).Get(ctx, i.name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		i.stored = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("read inventory ConfigMap %s/%s: %w", InventoryNamespace, i.name, err)
	}
	return nil
}

// write stores the entries if they differ from what is stored. Two applies at once are an error of the later writer.
func (i *inventory) write(ctx context.Context) error {
	text, err := i.text()
	if err != nil {
		return err
	}
	if i.holds(text) {
		return nil
	}
	var stored *corev1.ConfigMap
	err = i.retry(ctx, func() (err error) {
		stored, err = i.send(ctx, text)
		return err
	})
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		// Either someone else was faster, or this is the repetition of a request of which only the answer was lost.
		if again := i.read(ctx); again != nil || !i.holds(text) {
			return fmt.Errorf("inventory ConfigMap %s/%s was changed meanwhile: another apply runs at the same time; run it again when that has ended: %w", InventoryNamespace, i.name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("write inventory ConfigMap %s/%s: %w", InventoryNamespace, i.name, err)
	}
	i.stored = stored
	return nil
}

func (i *inventory) holds(text string) bool {
	return i.stored != nil && i.stored.Data[inventoryKey] == text
}

func (i *inventory) send(ctx context.Context, text string) (*corev1.ConfigMap, error) {
	maps := i.client.CoreV1().ConfigMaps(InventoryNamespace)
	if i.stored != nil {
		changed := i.stored.DeepCopy()
		changed.Data = map[string]string{inventoryKey: text}
		return maps.Update(ctx, changed, metav1.UpdateOptions{FieldManager: FieldManager})
	}
	return maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: i.name, Namespace: InventoryNamespace,
			Labels:      map[string]string{"app.kubernetes.io/managed-by": FieldManager},
			Annotations: map[string]string{"kubernetes.bosh.io/description": "What the kubernetes-addons job has applied; needed to remove what a later version no longer has."},
		},
		Data: map[string]string{inventoryKey: text},
	}, metav1.CreateOptions{FieldManager: FieldManager})
}

// text is the same for the same entries, so that an apply that changes nothing writes nothing.
func (i *inventory) text() (string, error) {
	entries := make([]entry, 0, len(i.entries))
	for _, e := range i.entries {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	text, err := json.MarshalIndent(entries, "", " ")
	return string(text), err
}
