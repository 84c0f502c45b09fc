package main

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/beevik/etree"
	dsig "github.com/russellhaering/goxmldsig"
	"github.com/russellhaering/goxmldsig/etreeutils"
)

const (
	soapNS     = "http://schemas.xmlsoap.org/soap/envelope/"
	dsigNS     = "http://www.w3.org/2000/09/xmldsig#"
	utilityNS  = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd"
	securityNS = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd"
	wsse11NS   = "http://docs.oasis-open.org/wss/oasis-wss-wssecurity-secext-1.1.xsd"
	profile    = "http://docs.oasis-open.org/wss/oasis-wss-saml-token-profile-1.1#"
	base64Type = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-soap-message-security-1.0#Base64Binary"
	x509Type   = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-x509-token-profile-1.0#X509v3"
	exclusive  = "http://www.w3.org/2001/10/xml-exc-c14n#"
	rsaSHA256  = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
	digestSHA  = "http://www.w3.org/2001/04/xmlenc#sha256"
)

// signedMessage is a SOAP envelope with its security header taken apart; nothing of it is believed yet.
type signedMessage struct {
	security, timestamp, signature, signedInfo, body *etree.Element
}

// only gives the one child of this name and namespace; several are as wrong as none, because a second one could be
// what is looked at later.
func only(parent *etree.Element, namespace, name string) (*etree.Element, error) {
	var found *etree.Element
	for _, child := range parent.ChildElements() {
		if child.Tag != name || child.NamespaceURI() != namespace {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("there are several %s in %s", name, parent.Tag)
		}
		found = child
	}
	if found == nil {
		return nil, fmt.Errorf("there is no %s in %s", name, parent.Tag)
	}
	return found, nil
}

func parseMessage(text []byte) (*signedMessage, error) {
	document := etree.NewDocument()
	if err := document.ReadFromBytes(text); err != nil {
		return nil, fmt.Errorf("the message is no XML: %w", err)
	}
	root := document.Root()
	if root == nil || root.Tag != "Envelope" || root.NamespaceURI() != soapNS {
		return nil, errors.New("the message is no SOAP envelope")
	}
	m := &signedMessage{}
	header, err := only(root, soapNS, "Header")
	steps := []struct {
		to              **etree.Element
		in              **etree.Element
		namespace, name string
	}{
		{&m.body, &root, soapNS, "Body"},
		{&m.security, &header, securityNS, "Security"},
		{&m.timestamp, &m.security, utilityNS, "Timestamp"},
		{&m.signature, &m.security, dsigNS, "Signature"},
		{&m.signedInfo, &m.signature, dsigNS, "SignedInfo"},
	}
	for _, step := range steps {
		if err == nil {
			*step.to, err = only(*step.in, step.namespace, step.name)
		}
	}
	return m, err
}

// canonical is the exclusive canonical form, made from the parsed tree: whatever was sent, this is what it means.
func canonical(element *etree.Element) ([]byte, error) {
	context, err := etreeutils.NSBuildParentContext(element)
	if err != nil {
		return nil, err
	}
	context, err = context.SubContext(element)
	if err != nil {
		return nil, err
	}
	detached, err := etreeutils.NSDetatch(context, element)
	if err != nil {
		return nil, err
	}
	return dsig.MakeC14N10ExclusiveCanonicalizerWithPrefixList("").Canonicalize(detached)
}

// verify checks that exactly time stamp and body are signed, with this key.
func (m *signedMessage) verify(key *rsa.PublicKey) error {
	if err := algorithm(m.signedInfo, "CanonicalizationMethod", exclusive); err != nil {
		return err
	}
	if err := algorithm(m.signedInfo, "SignatureMethod", rsaSHA256); err != nil {
		return err
	}
	var references []*etree.Element
	for _, child := range m.signedInfo.ChildElements() {
		if child.Tag == "Reference" {
			references = append(references, child)
		}
	}
	if len(references) != 2 {
		return fmt.Errorf("%d parts are signed; expected the time stamp and the body", len(references))
	}
	for i, part := range []*etree.Element{m.timestamp, m.body} {
		if err := digested(references[i], part); err != nil {
			return err
		}
	}
	value, err := only(m.signature, dsigNS, "SignatureValue")
	if err != nil {
		return err
	}
	signature, err := base64.StdEncoding.DecodeString(value.Text())
	if err != nil {
		return errors.New("the signature is no base64")
	}
	info, err := canonical(m.signedInfo)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(info)
	if rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) != nil {
		return errors.New("the signature is not of the expected key over SignedInfo")
	}
	return nil
}

func algorithm(parent *etree.Element, name, expected string) error {
	element, err := only(parent, dsigNS, name)
	if err != nil {
		return err
	}
	if found := element.SelectAttrValue("Algorithm", ""); found != expected {
		return fmt.Errorf("the %s is %q", name, found)
	}
	return nil
}

// digested checks that the reference is to this part, by an id that nothing else has, and that its digest is right.
func digested(reference, part *etree.Element) error {
	id := ""
	for _, attribute := range part.Attr {
		if attribute.Key == "Id" && attribute.NamespaceURI() == utilityNS {
			id = attribute.Value
		}
	}
	if uri := reference.SelectAttrValue("URI", ""); id == "" || uri != "#"+id {
		return fmt.Errorf("the reference %q is not to the %s", uri, part.Tag)
	}
	if number := withID(root(part), id); number != 1 {
		return fmt.Errorf("%d elements have the id of the %s", number, part.Tag)
	}
	transforms, err := only(reference, dsigNS, "Transforms")
	if err != nil {
		return err
	}
	if err := algorithm(transforms, "Transform", exclusive); err != nil {
		return err
	}
	if err := algorithm(reference, "DigestMethod", digestSHA); err != nil {
		return err
	}
	value, err := only(reference, dsigNS, "DigestValue")
	if err != nil {
		return err
	}
	text, err := canonical(part)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(text); value.Text() != base64.StdEncoding.EncodeToString(sum[:]) {
		return fmt.Errorf("the digest of the %s is wrong", part.Tag)
	}
	return nil
}

func root(element *etree.Element) *etree.Element {
	for element.Parent() != nil && element.Parent().Tag != "" {
		element = element.Parent()
	}
	return element
}

func withID(element *etree.Element, id string) int {
	number := 0
	for _, attribute := range element.Attr {
		if (attribute.Key == "Id" || attribute.Key == "ID") && attribute.Value == id {
			number++
		}
	}
	for _, child := range element.ChildElements() {
		number += withID(child, id)
	}
	return number
}

// tokenReference is how the signature says which key made it.
func (m *signedMessage) tokenReference() (*etree.Element, error) {
	info, err := only(m.signature, dsigNS, "KeyInfo")
	if err != nil {
		return nil, err
	}
	return only(info, securityNS, "SecurityTokenReference")
}

// certificate gives the one that goes along and that the signature refers to.
func (m *signedMessage) certificate() (*x509.Certificate, error) {
	token, err := only(m.security, securityNS, "BinarySecurityToken")
	if err != nil {
		return nil, err
	}
	outer, err := m.tokenReference()
	if err != nil {
		return nil, err
	}
	reference, err := only(outer, securityNS, "Reference")
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{
		reference.SelectAttrValue("URI", ""):       true,
		"#" + token.SelectAttrValue("wsu:Id", "-"): true,
	}
	types := reference.SelectAttrValue("ValueType", "") == x509Type &&
		token.SelectAttrValue("ValueType", "") == x509Type && token.SelectAttrValue("EncodingType", "") == base64Type
	if len(wanted) != 1 || !types {
		return nil, errors.New("the signature does not refer to the certificate that goes along")
	}
	der, err := base64.StdEncoding.DecodeString(token.Text())
	if err != nil {
		return nil, errors.New("the certificate is no base64")
	}
	return x509.ParseCertificate(der)
}

// tokenID gives the id of the assertion that goes along and that the signature refers to.
func (m *signedMessage) tokenID() (string, error) {
	assertion, err := only(m.security, samlNS, "Assertion")
	if err != nil {
		return "", err
	}
	outer, err := m.tokenReference()
	if err != nil {
		return "", err
	}
	identifier, err := only(outer, securityNS, "KeyIdentifier")
	if err != nil {
		return "", err
	}
	kind := ""
	for _, attribute := range outer.Attr {
		if attribute.Key == "TokenType" && attribute.NamespaceURI() == wsse11NS {
			kind = attribute.Value
		}
	}
	id := assertion.SelectAttrValue("ID", "")
	if kind != profile+"SAMLV2.0" || identifier.SelectAttrValue("ValueType", "") != profile+"SAMLID" || identifier.Text() != id {
		return "", errors.New("the signature does not refer to the assertion that goes along")
	}
	return id, nil
}

var threeDigits = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

const layout = "2006-01-02T15:04:05.000Z"

func stamp(at time.Time) string { return at.UTC().Format(layout) }

// times reads Created and Expires, which must be spelled as the real service wants them.
func times(parent *etree.Element) (created, expires time.Time, err error) {
	for name, to := range map[string]*time.Time{"Created": &created, "Expires": &expires} {
		element, err := only(parent, utilityNS, name)
		if err != nil {
			return created, expires, err
		}
		if !threeDigits.MatchString(element.Text()) {
			return created, expires, fmt.Errorf("%s is not spelled with three fraction digits and Z", name)
		}
		if *to, err = time.Parse(layout, element.Text()); err != nil {
			return created, expires, err
		}
	}
	return created, expires, nil
}

// fresh checks the time stamp: a minute long, and now within it, give or take some seconds.
func (m *signedMessage) fresh(now time.Time) error {
	created, expires, err := times(m.timestamp)
	switch {
	case err != nil:
		return err
	case expires.Sub(created) > time.Minute || !expires.After(created):
		return errors.New("the message lives longer than a minute")
	case now.After(expires):
		return errors.New("the message has expired")
	case now.Add(5 * time.Second).Before(created):
		return errors.New("the message is of the future")
	}
	return nil
}

// tokenRequest checks what is asked for: a delegatable holder-of-key token for the key that signed.
func (m *signedMessage) tokenRequest(now time.Time) (created, expires time.Time, fault *stsFault) {
	request, err := only(m.body, trustNS, "RequestSecurityToken")
	if err != nil {
		return created, expires, &stsFault{"InvalidRequest", err}
	}
	for name, expected := range map[string]string{
		"TokenType": samlNS, "RequestType": trustNS + "/Issue", "KeyType": trustNS + "/PublicKey",
		"SignatureAlgorithm": rsaSHA256, "Delegatable": "true",
	} {
		element, err := only(request, trustNS, name)
		if err == nil && element.Text() != expected {
			err = fmt.Errorf("%s is %q", name, element.Text())
		}
		if err != nil {
			return created, expires, &stsFault{"InvalidRequest", err}
		}
	}
	use, err := only(request, trustNS, "UseKey")
	if err == nil && use.SelectAttrValue("Sig", "") != m.signature.SelectAttrValue("Id", "-") {
		err = errors.New("UseKey does not name the signature")
	}
	if err != nil {
		return created, expires, &stsFault{"InvalidRequest", err}
	}
	lifetime, err := only(request, trustNS, "Lifetime")
	if err == nil {
		created, expires, err = times(lifetime)
	}
	if err == nil && (created.Sub(now).Abs() > time.Minute || !expires.After(now)) {
		err = errors.New("the lifetime asked for does not begin now")
	}
	if err != nil {
		return created, expires, &stsFault{"InvalidTimeRange", err}
	}
	return created, expires, nil
}

func escapeText(text string) string {
	var escaped bytes.Buffer
	_ = xml.EscapeText(&escaped, []byte(strings.ToValidUTF8(text, "?")))
	return escaped.String()
}
